# Two commands do everything on a machine with Python 3.11+ and make:
#   make demo   sets up .venv, runs a part of the paper, leaves report/report.html to open
#   make test   sets up .venv, runs all tests
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
# Benchmarks import `reproduction`, which is not installed.
export PYTHONPATH := $(CURDIR)

.PHONY: demo test test-all-pythons test-oldest site cookbook coverage lint dist test-dist bench bench-models bench-hard bench-peers check-estimators paper kill-paper paper-misses clean

# Under a minute on two cores after the set-up; nothing is downloaded.
demo: $(READY)
	$(RUN) -m reproduction quick --out report
	@echo "Open report/report.html"

# Three processes: some tests wait for processes of their own.
test: $(READY)
	$(RUN) -m pytest -q -n 3

# On 3.11, 3.12 and 3.13, as far as they are on this machine; TESTS goes to pytest:
# make test-all-pythons TESTS='-m "not slow" -n 2'
TESTS ?= -n 2
test-all-pythons:
	$(PYTHON) tools/environments.py pythons $(TESTS)

# Every dependency at the lowest version that pyproject.toml allows.
test-oldest:
	$(PYTHON) tools/environments.py oldest $(TESTS)

# Which lines the tests run. Processes that tests start are not counted.
coverage: $(READY)
	$(RUN) -m pytest -q -n 2 --cov=mixvi --cov=reproduction --cov-report=term:skip-covered

# The documentation site, warnings as errors; then every link of it is followed.
site: $(VENV)/.docs
	$(RUN) -m sphinx -E -q -W --keep-going -b html docs docs/_build
	$(RUN) docs/_ext/check_site.py docs/_build
	@echo "Open docs/_build/index.html"

# The cookbook's pages run, and NUTS beside them (ten minutes on 2 cores): tables and pictures.
cookbook: $(READY)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[bench]"
	$(RUN) benchmarks/cookbook.py

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m pyright
	$(VENV)/bin/lint-imports

# What is handed out, into dist/; and whether it installs bare, runs the README and tests itself.
dist: $(READY)
	rm -rf dist
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[release]"
	$(RUN) -m build

test-dist: dist
	$(RUN) tools/distribution.py

# The measurements behind docs/results/core.md (about half an hour on 2 cores).
bench: $(READY)
	$(RUN) benchmarks/run_all.py core

# Those behind docs/results/models.md; they need the data sets (MIXVI_DATA). An hour on 2 cores.
bench-models: $(READY)
	$(RUN) benchmarks/run_all.py models

# Those behind docs/results/hard.md: every family on nineteen posteriors. Two hours on 2 cores; it
# goes on where it stopped (delete docs/results/parts/hard_rows.jsonl to begin anew).
bench-hard: $(READY)
	$(RUN) benchmarks/run_all.py hard

# Other libraries on the same posteriors, beside ours: their packages come with the extra `bench`. An
# hour of a core; it goes on where it stopped (docs/results/parts/peers_rows.jsonl).
bench-peers: $(READY)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[bench]"
	$(RUN) benchmarks/peers.py --defects > docs/results/parts/peers.md
	$(RUN) benchmarks/peers.py > docs/results/parts/peers.md

# scikit-learn's own checks for every family; make test runs them for the default one.
check-estimators: $(READY)
	$(RUN) benchmarks/check_estimators.py

# The whole paper, both protocols (MIXVI_DATA): about four hours of a core for `best`, of as many as
# there are. It goes on where it stopped.
paper: $(READY)
	$(RUN) -m reproduction all --protocol both --out report/paper
	$(RUN) -m reproduction report --out report/paper --to docs/results/paper

# A run that is killed ten times ends with the rows of an unbroken one.
kill-paper: $(READY)
	$(RUN) benchmarks/kill_paper.py > docs/results/parts/kill_paper.md

# What changes in the cells that are missed when one choice changes.
paper-misses: $(READY)
	$(RUN) benchmarks/paper_misses.py > docs/results/parts/paper_misses.md

$(READY): pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'mixvi needs Python 3.11 or newer')"
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[plots,test,lint]"
	touch $(READY)

$(VENV)/.docs: $(READY)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) .venvs report dist docs/_build

"""Runs the benchmarks of one page and writes it: docs/results/{core,models,hard}.md.

The accelerator's table is kept as it was measured there, by
`python benchmarks/many.py > docs/results/many_accelerator.md`.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE.parent / "docs" / "results"
CORE = {
    "Gaussian targets: every family that contains the answer gives it": ["gaussians.py"],
    "The paper's 2-D example, by quadrature": ["two_dimensional.py"],
    "Evaluations to convergence: the paper's coordinates against ours": ["coordinates.py"],
    "The first call, and a warm one, beside a Laplace driven by SciPy": ["first_call.py"],
    "What imports cost": ["imports.py"],
    "First fits beside NUTS": ["nuts.py"],
    "NUTS from where a fit ended": ["handover.py"],
    "Warm time against hand-jitted code": ["speed.py"],
    "A thousand posteriors in one call": ["many.py"],
    "Peak memory": ["memory.py"],
    "Many parameters": ["many_parameters.py"],
    "Nesting on Cauchy posteriors": ["nesting.py"],
    "Known-bad targets: what the user sees": ["known_bad.py"],
    "Mass where few draws fall: how often it is trusted": ["shoulders.py"],
    "Bad inputs: the sentence each gets": ["bad_inputs.py"],
}
MODELS = {
    "Closed forms against differences, adaptive integration, draws and repetition": [
        "closed_form.py"
    ],
    "Quadrature": ["quadrature.py"],
    "Leave-one-out against refits": ["left_out.py"],
    "Predictions with hyperparameters integrated": ["nested_predictions.py"],
    "The joint log predictive density by products": ["joint_lpd.py"],
    "The eight sets of the README": ["eight_sets.py"],
    "Estimators beside scikit-learn's": ["estimators.py"],
    "Gaussian processes beside scikit-learn's": ["gp.py"],
    "Rows from a thousand to a million": ["rows.py"],
    "Rows in pieces: ten thousand to ten million": ["pieces.py"],
    "A cluster, a driver that is killed, several devices": ["cluster.py"],
    "Pieces, clusters and checkpoints that go wrong": ["bad_pieces.py"],
    "Mini-batches beside exact passes": ["minibatch.py"],
    "Classification on published splits, every family and peers": ["classification.py"],
    "Hard and bad tables": ["bad_tables.py"],
    "scikit-learn's own checks": ["check_estimators.py"],
    "Bad tables and command lines: what `mixvi` says": ["bad_command_lines.py"],
    "A table whose bytes are changed at random": ["fuzz_tables.py"],
}
HARD = {
    "Every family on posteriors that NUTS has judged": ["hard.py"],
    "No mode: ten perturbed starts": ["starts.py"],
    "Stein steps against quasi-Newton": ["stein.py"],
    "The verdict, leaving one posterior out": ["verdicts.py"],
    "The verdict with ten keys": ["steady.py"],
    "Several modes, and one": ["several_modes.py"],
    "What looking for other modes costs": ["looking.py"],
    "What is said, case by case": ["sentences.py"],
    "Centred or not": ["centring.py"],
    "Few groups of few rows: trusted, but wrong": ["few_groups.py"],
    "Mixtures beside the best Gaussian": ["mixtures.py"],
    "The verdict for mixtures, leaving one posterior out": ["mixture_verdicts.py"],
    "Hyperparameters integrated, against NUTS": ["nested.py"],
    "Posteriors of hyperparameters that are far from normal": ["rough_designs.py"],
    "Quantiles that weighted draws have corrected": ["marginals.py"],
}
PAGES = {
    "core": ("core", CORE, "bench"),
    "models": ("models and estimators", MODELS, "bench-models"),
    "hard": ("hard posteriors", HARD, "bench-hard"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", choices=PAGES)
    parser.add_argument("--only", nargs="*", help="scripts to run; the others keep their last text")
    options = parser.parse_args()
    only, (subject, sections, command) = options.only, PAGES[options.page]
    RESULTS.mkdir(parents=True, exist_ok=True)
    intro = f"Written by `make {command}`; each section is one script."
    parts = [f"# Measurements of the {subject}\n\n{intro}\n"]
    for title, (script,) in sections.items():
        kept = RESULTS / "parts" / f"{pathlib.Path(script).stem}.md"
        if not kept.exists() or only is None or script in only:
            print(f"{script} ...", end=" ", flush=True)
            began = time.monotonic()
            command, env = [sys.executable, HERE / script], os.environ | {"PYTHONPATH": HERE.parent}
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env)
            print(f"{time.monotonic() - began:.0f} s", flush=True)
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(done.stdout.strip() + "\n", encoding="utf-8")
        parts.append(f"## {title}\n\n`benchmarks/{script}`\n\n{kept.read_text(encoding='utf-8')}")
        accelerator = RESULTS / "many_accelerator.md"
        if script == "many.py" and accelerator.exists():
            parts.append("On an accelerator:\n\n" + accelerator.read_text(encoding="utf-8"))
    page = RESULTS / f"{options.page}.md"
    page.write_text("\n".join(parts), encoding="utf-8")
    print(f"wrote {page}")


if __name__ == "__main__":
    main()

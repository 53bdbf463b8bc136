"""Mixed models in R: lme4 and glmmTMB on the data of `many_parameters.py`."""

import os
import subprocess
import tempfile

import numpy as np

EACH, COMMON, NOISE = 5, 3, 0.7
TRUE = np.array([-0.5, 0.8, -0.4])
# A peer that has not ended by then is stopped.
MOST_SECONDS = 165


def mixed_data(kind: str, groups: int) -> tuple:
    rng = np.random.default_rng(0)
    n = groups * EACH
    of, x = np.repeat(np.arange(groups), EACH), rng.normal(size=(n, COMMON))
    x[:, 0] = 1.0
    eta = x @ TRUE + rng.normal(size=groups)[of]
    if kind == "Gaussian":
        y = eta + NOISE * rng.normal(size=n)
    elif kind == "Poisson":
        y = rng.poisson(np.exp(eta)).astype(float)
    else:
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    return of, x, y


R = """
suppressMessages(library({package}))
n <- {n}
read <- function(name) readBin(file.path("{folder}", name), "double", n)
d <- data.frame(y=read("y"), x1=read("x1"), x2=read("x2"), g=factor(read("g")))
began <- proc.time()
fit <- {call}
took <- proc.time() - began
status <- readLines("/proc/self/status")
peak <- as.numeric(gsub("[^0-9]", "", status[grepl("^VmHWM", status)])) / 2^20
fixed <- {fixed}
sd <- attr({random}$g, "stddev")
cat(sprintf("%.8g ", c(took[["elapsed"]], took[["user.self"]] + took[["sys.self"]], peak,
    fixed, sqrt(diag({covariance})), sd, sigma(fit))), "\\n")
cat(R.version$major, ".", R.version$minor, "; ", as.character(packageVersion("{package}")), "\\n",
    sep="")
"""
FORMULA = "y ~ x1 + x2 + (1 | g)"
FAMILIES = {"Gaussian": "gaussian()", "logistic": "binomial()", "Poisson": "poisson()"}


def peer_step(name: str) -> dict:
    package, kind, how = name.split(", ")
    if package == "glmmTMB":
        family = FAMILIES[kind].replace("()", "")
        reml = ", REML=TRUE" if kind == "Gaussian" else ""
        call = f"glmmTMB({FORMULA}, d, family={family}{reml})"
        words = {"fixed": "fixef(fit)$cond", "random": "VarCorr(fit)$cond"}
        words["covariance"] = "vcov(fit)$cond"
    else:
        agq = how.split("=")[-1] if "=" in how else "1"
        call = f"glmer({FORMULA}, d, family={FAMILIES[kind]}, nAGQ={agq})"
        if kind == "Gaussian":
            call = f"lmer({FORMULA}, d)"
        words = {"fixed": "fixef(fit)", "random": "VarCorr(fit)"}
        words["covariance"] = "as.matrix(vcov(fit))"
    of, x, y = mixed_data(kind, 100_000)
    columns = {"y": y, "x1": x[:, 1], "x2": x[:, 2], "g": of.astype(float)}
    with tempfile.TemporaryDirectory() as folder:
        for column, values in columns.items():
            values.tofile(os.path.join(folder, column))
        script = R.format(package=package, n=len(y), folder=folder, call=call, **words)
        try:
            done = subprocess.run(
                ["Rscript", "-e", script], capture_output=True, text=True, timeout=MOST_SECONDS
            )
        except subprocess.TimeoutExpired:
            return {"stopped": MOST_SECONDS}
    if done.returncode:
        return {"error": done.stderr[-500:]}
    numbers, versions = done.stdout.strip().splitlines()[-2:]
    wall, cpu, peak, *rest = (float(one) for one in numbers.split())
    r, own = (one.strip() for one in versions.split(";"))
    return {
        "wall": wall,
        "cpu": cpu,
        "peak": peak,
        "fixed": rest[:COMMON],
        "se": rest[COMMON : 2 * COMMON],
        "sd": rest[2 * COMMON],
        "noise": rest[-1] if kind == "Gaussian" else None,
        "versions": f"R {r}, {package} {own}",
    }


PEERS = [
    "lme4, Gaussian, REML",
    "glmmTMB, Gaussian, REML",
    "lme4, logistic, nAGQ=0",
    "lme4, logistic, nAGQ=1",
    "glmmTMB, logistic, Laplace",
    "lme4, Poisson, nAGQ=1",
    "glmmTMB, Poisson, Laplace",
]

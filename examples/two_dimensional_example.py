"""The paper's 2-D example (its Figure 1): how far each family is from a posterior it cannot match.

Fits a mixture of two Gaussians with every family, measures KL(q || p) by quadrature, draws the
picture and leaves a page to open: report/index.html.
"""

import argparse
import base64
import html
import pathlib

import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import mixvi
from mixvi.plots import ellipse

FAMILIES = {"laplace": "black", "mu": "tab:red", "eig": "tab:green", "lr": "tab:blue"}
PAPER = {"laplace": "Laplace", "mu": "MVI_mu", "eig": "MVI_eig", "lr": "MVI_lr"}


def log_density(w):
    """2/3 N(0, I) + 1/3 N((-1, -2), diag(3.5, 0.3))"""
    first = jnp.log(2 / 3) - 0.5 * (w @ w)
    away = (w - jnp.array([-1.0, -2.0])) / jnp.sqrt(jnp.array([3.5, 0.3]))
    second = jnp.log(1 / 3) - 0.5 * jnp.log(3.5 * 0.3) - 0.5 * (away @ away)
    return jnp.logaddexp(first, second) - jnp.log(2 * jnp.pi)


def kl(post: mixvi.Posterior) -> float:
    """KL(q || p) by Gauss-Hermite quadrature over the posterior's own coordinates."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z = np.stack([axis.ravel() for axis in np.meshgrid(nodes, nodes)], axis=1)
    points = post.flat_mean + z @ post.root.T
    log_p = np.array(jnp.vectorize(log_density, signature="(d)->()")(points), dtype=float)
    return float(np.outer(weights, weights).ravel() / (2 * np.pi) @ (post.log_prob(points) - log_p))


def figure(posts: dict[str, mixvi.Posterior], kls: dict[str, float]):
    picture, axes = plt.subplots(figsize=(6.4, 5.2))
    x, y = np.meshgrid(np.linspace(-4.6, 3.2, 160), np.linspace(-3.9, 2.9, 160))
    grid = np.stack([x.ravel(), y.ravel()], axis=1)
    density = np.exp(jnp.vectorize(log_density, signature="(d)->()")(grid)).reshape(x.shape)
    axes.contour(x, y, density, levels=10, colors="0.6", linewidths=0.8)
    for family, colour in FAMILIES.items():
        label = f"{PAPER[family]}   KL = {kls[family]:.3f}"
        ellipse(axes, posts[family].flat_mean, posts[family].cov, 0.7, colour, label, True)
    axes.legend(loc="upper left", frameon=False)
    axes.set(title="One posterior, four Gaussians (70% ellipses)", xlabel="w[0]", ylabel="w[1]")
    axes.set_aspect("equal")
    picture.tight_layout()
    return picture


def page(posts: dict[str, mixvi.Posterior], kls: dict[str, float], png: bytes) -> str:
    rows = "\n".join(
        f"<tr><td>{PAPER[family]}</td><td>{kls[family]:.4f}</td><td>{post.log_evidence:.4f}</td>"
        f"<td>{post.khat:.2f}</td><td>{post.stats.get('passes', 0)}</td>"
        f"<td>{html.escape(post.verdict)}</td></tr>"
        for family, post in posts.items()
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>mixvi: the 2-D example</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; }}
body {{ padding: 0 1rem; }}
img {{ max-width: 100%; }} table {{ border-collapse: collapse; }} .wide {{ overflow-x: auto; }}
td, th {{ padding: .3rem .7rem; border-bottom: 1px solid #ddd; text-align: left; }}
pre {{ background: #f6f6f6; padding: 1rem; overflow-x: auto; }}
</style></head><body>
<h1>One posterior, four Gaussians</h1>
<p>The target is the mixture of two Gaussians of Figure 1 in <i>Mixed Variational Inference</i>
(Gianniotis 2019). Laplace sits on the mode. The other three start from Laplace and adapt a part of
it: its mean, also its scales along its axes, or also its root by a rank-one change.</p>
<p><img alt="Contours of the target, and the four Gaussians as ellipses"
src="data:image/png;base64,{base64.b64encode(png).decode()}"></p>
<div class="wide"><table><tr><th>family</th><th>KL(q || p)</th><th>log evidence (true: 0)</th>
<th>k-hat</th><th>passes</th><th>verdict</th></tr>
{rows}
</table></div>
<h2>What a fit says of itself</h2>
<pre>{html.escape(posts["lr"].summary())}</pre>
</body></html>
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("report"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    posts, kls = {}, {}
    for family in FAMILIES:
        posts[family] = mixvi.fit(log_density, np.zeros(2), family, draws=1000)
        kls[family] = kl(posts[family])
        print(f"{PAPER[family]:<8} KL {kls[family]:.4f}   {posts[family].verdict}", flush=True)
    figure(posts, kls).savefig(out / "figure1.png", dpi=110)
    text = page(posts, kls, (out / "figure1.png").read_bytes())
    (out / "index.html").write_text(text, encoding="utf-8")
    print(f"wrote {out / 'index.html'}")


if __name__ == "__main__":
    main()

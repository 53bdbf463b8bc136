"""The Gaussian itself: moments, samples, log densities; in bounded space; in files."""

"""Arrays that know no model: draws and nodes, Sobol points, roots of covariances."""

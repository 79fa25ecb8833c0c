"""A few models on generated data; figures are rounded, because the order of additions follows the alignment."""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

x, y = make_classification(30_000, 40, n_informative=20, random_state=0)
forest = RandomForestClassifier(20, max_depth=10, n_jobs=2, random_state=0).fit(x, y)
print("forest", round(forest.score(x, y), 3))
boost = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(x, y)
print("boost", round(boost.score(x, y), 2))
print("pca", np.round(PCA(5, svd_solver="full").fit(x).explained_variance_, 4).tolist())
print("kmeans", round(KMeans(4, n_init=2, random_state=0).fit(x).inertia_ / 1e5, 2))

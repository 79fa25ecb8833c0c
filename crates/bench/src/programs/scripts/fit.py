"""A fit that spends its time computing."""
import sys

import numpy as np
from sklearn.ensemble import RandomForestClassifier

rows = int(sys.argv[1])
rng = np.random.default_rng(1)
points = rng.random((rows, 8))
labels = (points[:, 0] + points[:, 1] * points[:, 2] > 0.8).astype(int)
model = RandomForestClassifier(n_estimators=30, random_state=1).fit(points, labels)
print(model.score(points, labels), int(model.predict(points).sum()))

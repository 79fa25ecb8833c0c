"""What an application does before it does anything: it brings its libraries up."""
import numpy
import sklearn.ensemble
import sklearn.linear_model

print(numpy.ones(3).sum(), sklearn.linear_model.LinearRegression.__name__, sklearn.ensemble.__name__)

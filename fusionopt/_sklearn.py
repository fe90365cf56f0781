"""scikit-learn's parts that the estimators build on, or one sentence that says how to get them."""

from fusionopt.errors import MissingDependencyError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import pairwise_distances_argmin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingDependencyError(
        "The estimators need scikit-learn 1.6 or later, which is not installed; install it with: pip "
        "install scikit-learn",
        package="scikit-learn",
    ) from error

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "ClusterMixin",
    "ConvergenceWarning",
    "RegressorMixin",
    "check_classification_targets",
    "check_is_fitted",
    "pairwise_distances_argmin",
    "validate_data",
]

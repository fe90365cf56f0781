"""Seeded generators with a known partition, and data sets dealt out to clients. Nothing is fetched."""

from fusionopt.datasets._clients import ClientData
from fusionopt.datasets._images import load_digits, load_mnist
from fusionopt.datasets._mixtures import make_fedsoft_synthetic, mixture_shares, split_mixture
from fusionopt.datasets._shifts import label_swap, permute_labels, rotate
from fusionopt.datasets._splits import split_dirichlet, split_evenly, split_imbalanced
from fusionopt.datasets._synthetic import (
    make_ellipses,
    make_fpfc_synthetic,
    make_gaussian_groups,
    make_mixture_regression,
)
from fusionopt.datasets._toys import make_conflict, make_xor

__all__ = [
    "ClientData",
    "label_swap",
    "load_digits",
    "load_mnist",
    "make_conflict",
    "make_ellipses",
    "make_fedsoft_synthetic",
    "make_fpfc_synthetic",
    "make_gaussian_groups",
    "make_mixture_regression",
    "make_xor",
    "mixture_shares",
    "permute_labels",
    "rotate",
    "split_dirichlet",
    "split_evenly",
    "split_imbalanced",
    "split_mixture",
]

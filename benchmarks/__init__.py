"""Timings of fusionopt against other tools, each row behind a correctness gate.

Importing the package limits the numerical libraries to one thread, before any of them is loaded.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL", "BLIS", "RAYON"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

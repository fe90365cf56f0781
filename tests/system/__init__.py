"""Whole solves against closed forms, an independent solver and recomputed certificates."""

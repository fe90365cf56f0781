"""Tests: `catalogue` has known answers, `oracles` slow independent checks, `strategies` Hypothesis inputs."""

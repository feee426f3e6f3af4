"""Estimates of where time goes: a model of one compute unit, and of the memory beyond it, on recorded executions."""

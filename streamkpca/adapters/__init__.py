"""Doors to other libraries, each opened by importing it.

for_river : a transformer and an anomaly detector for River's pipelines.
"""

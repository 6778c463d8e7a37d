"""Collectors: what is observed of a rollout, from its servers and its run folder."""

"""Assignments: the deployment that a life gives to its workers, the settings that it gives to its service."""

"""Whole clusters of the production actors in one trio run; one seed is one exact history."""

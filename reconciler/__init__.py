"""Reads pools, templates, policies and tenants from Git and makes them so."""

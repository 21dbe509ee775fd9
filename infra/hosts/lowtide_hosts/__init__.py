"""Hosts of a cluster on one machine: Linux namespaces with an address of their own, and Terraform's provider for them.

A host has its own network, process ids, name, `/tmp` and home; it sees only those files of the machine that it is
given. Killing its first process kills everything on it, like pulling the plug. Root only.
"""

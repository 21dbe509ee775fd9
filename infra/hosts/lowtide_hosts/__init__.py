"""Hosts of a cluster on one machine: Linux namespaces with an address of their own, and Terraform's provider for them.

A host has its own network, process ids, name, `/tmp` and home; of the machine's files it sees what it is given. Killing
its first process kills all that runs on it, as pulling the plug would. Root only.
"""

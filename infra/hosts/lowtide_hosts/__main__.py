"""Terraform's provider: `python -m lowtide_hosts`, as Terraform starts it."""

from tf.runner import run_provider

from lowtide_hosts.provider import Hosts

if __name__ == "__main__":
    run_provider(Hosts())

# Hosts with addresses of their own, which know each other by name.

resource "hosts_network" "this" {
  name = var.name
  cidr = var.cidr
}

resource "hosts_host" "this" {
  for_each = var.hosts

  network = hosts_network.this.name
  name    = each.key
  address = cidrhost(var.cidr, each.value.number)
  mounts  = each.value.mounts
  hidden  = each.value.hidden
}

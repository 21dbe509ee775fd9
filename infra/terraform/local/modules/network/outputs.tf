output "network" {
  description = "The network, as the other modules take it."
  value = {
    name    = hosts_network.this.name
    cidr    = var.cidr
    gateway = hosts_network.this.gateway
    folder  = hosts_network.this.folder
    hosts = {
      for name, host in hosts_host.this : name => { address = host.address, boot = host.boot, home = host.home }
    }
  }
}

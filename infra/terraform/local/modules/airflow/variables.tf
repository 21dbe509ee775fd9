variable "network" {
  description = "The network, as the module `network` gives it."
  type = object({
    name    = string
    cidr    = string
    gateway = string
    folder  = string
    hosts   = map(object({ address = string, boot = string, home = string }))
  })
}

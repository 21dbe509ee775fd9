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

variable "hosts" {
  description = "The hosts that run a server each; an odd number."
  type        = list(string)
}

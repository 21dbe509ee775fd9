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

variable "master" {
  description = "The host that runs the master."
  type        = string
}

variable "workers" {
  description = "The hosts that run a worker each."
  type        = list(string)
}

variable "cores" {
  description = "How many tasks a worker runs at once."
  type        = number
}

variable "store" {
  description = "What workers need to reach the object store: credentials file and authority."
  type        = object({ credentials = string, authority = string })
  sensitive   = true
}

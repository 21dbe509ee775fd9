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
  description = "The hosts that run a broker each."
  type        = list(string)
}

variable "optimises" {
  description = "Whether brokers compile with the JVM's optimising compiler too."
  type        = bool
  default     = false
}

variable "authority" {
  description = "Who signs the brokers' certificates."
  type        = object({ certificate = string, key = string })
  sensitive   = true
}

variable "users" {
  description = "Who may log in, beside the brokers themselves."
  type        = list(string)
  default     = ["lowtide"]
}

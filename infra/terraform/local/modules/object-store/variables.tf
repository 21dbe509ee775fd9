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

variable "host" {
  description = "The host that runs the S3 server."
  type        = string
}

variable "bucket" {
  description = "The bucket for snapshots."
  type        = string
  default     = "lowtide"
}

variable "authority" {
  description = "Who signs the server's certificate."
  type        = object({ certificate = string, key = string })
  sensitive   = true
}

variable "network" {
  description = "The network, as the module `network` gives it."
  type = object({
    name    = string
    vpc_id  = string
    cidr    = string
    subnets = list(object({ id = string, cidr = string, zone = string }))
  })
}

variable "hosts" {
  description = "The hosts that run a server each; an odd number."
  type        = list(string)
}

variable "instance_type" {
  description = "What a server runs on; of the ARM family."
  type        = string
}

variable "disk_gb" {
  description = "How much a server can keep: Lowtide needs megabytes."
  type        = number
}

variable "clients" {
  description = "Security groups whose hosts may connect: name to id."
  type        = map(string)
}

variable "bucket" {
  description = "The bucket, as the module `object-store` gives it."
  type        = object({ name = string, arn = string, prefix = string, key_arn = string, key_arns = list(string) })
}

variable "software" {
  description = "ZooKeeper's archive: its object in the bucket, and its SHA-256."
  type        = object({ object = string, sha256 = string })
}

variable "s3_prefix_list" {
  description = "The addresses of S3."
  type        = string
}

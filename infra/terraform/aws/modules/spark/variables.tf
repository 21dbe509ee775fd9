variable "network" {
  description = "The network, as the module `network` gives it."
  type = object({
    name    = string
    vpc_id  = string
    cidr    = string
    subnets = list(object({ id = string, cidr = string, zone = string }))
  })
}

variable "master" {
  description = "The hosts that run YARN's and HDFS's masters: one, or three so that one may be lost."
  type        = object({ instance_type = string, count = number })
}

variable "workers" {
  description = "The hosts that run drivers and executors."
  type        = object({ instance_type = string, count = number, disk_gb = number })
}

variable "release" {
  description = "EMR's release."
  type        = string
}

variable "bucket" {
  description = "The bucket, as the module `object-store` gives it."
  type        = object({ name = string, arn = string, key_arn = string })
}

variable "software" {
  description = "Objects in the bucket: Lowtide's packed environment with its SHA-256, and the certificates for Hadoop's TLS."
  type        = object({ environment = string, environment_sha256 = string, certificates = string })
}

variable "secrets" {
  description = "What jobs read from /etc/lowtide: file name to secret's ARN. Of a secret in JSON it is the field `password`."
  type        = map(string)
}

variable "clients" {
  description = "Security groups whose hosts submit jobs and call their control APIs: name to id."
  type        = map(string)
}

variable "s3_prefix_list" {
  description = "The addresses of S3."
  type        = string
}

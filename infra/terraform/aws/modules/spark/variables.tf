variable "network" {
  description = "The network, as the module `network` gives it."
  type = object({
    name          = string
    vpc_id        = string
    cidr          = string
    services_cidr = string
    subnets       = list(object({ id = string, cidr = string, zone = string }))
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
  type        = object({ name = string, arn = string, prefix = string, key_arn = string, key_arns = list(string) })
}

variable "software" {
  description = "Objects in the bucket: Lowtide's packed environment with its SHA-256, and the certificates for Hadoop's TLS."
  type        = object({ environment = string, environment_sha256 = string, certificates = string })
}

variable "secrets" {
  description = "What jobs read from /etc/lowtide: file name to secret's ARN. Of a secret in JSON it is the field `password`."
  type        = map(string)
}

variable "servers" {
  description = "What jobs connect to beside AWS's services: name to security group and port."
  type        = map(object({ security_group_id = string, port = number }))
}

variable "control_ports" {
  description = "The ports of the jobs' control APIs: the first, and how many jobs may run at once."
  type        = object({ first = number, jobs = number })
}

variable "protected" {
  description = "Whether EMR refuses to terminate the cluster."
  type        = bool
}

variable "clients" {
  description = "Security groups whose hosts submit jobs and call their control APIs: name to id."
  type        = map(string)
}

variable "s3_prefix_list" {
  description = "The addresses of S3."
  type        = string
}

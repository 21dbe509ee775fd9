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

variable "existing" {
  description = "An Airflow that is there: its workers' IAM role and security group. Null: MWAA."
  type        = object({ role_name = string, security_group_id = string })
}

variable "mwaa" {
  description = "The Airflow to make. Null: there is one."
  type        = object({ version = string, class = string, max_workers = number })
}

variable "bucket" {
  description = "The bucket, as the module `object-store` gives it."
  type        = object({ name = string, arn = string, prefix = string, key_arn = string, key_arns = list(string) })
}

variable "cluster" {
  description = "Spark's cluster, as the module `spark` gives it."
  type        = object({ id = string, arn = string, host = string })
}

variable "zookeeper" {
  description = "Where clients find ZooKeeper."
  type        = string
}

variable "zookeeper_auth" {
  description = "The jobs' user:password in ZooKeeper; it reaches no state."
  type        = string
  ephemeral   = true
  sensitive   = true
}

variable "control_token" {
  description = "The token of the jobs' control APIs; it reaches no state."
  type        = string
  ephemeral   = true
  sensitive   = true
}

variable "secrets_version" {
  description = "Another number has the connection's secrets written again."
  type        = number
}

variable "s3_prefix_list" {
  description = "The addresses of S3."
  type        = string
}

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
  description = "The host that runs Airflow."
  type        = string
}

variable "jobs" {
  description = "The jobs file: what Airflow does for which job."
  type        = string
}

variable "connection" {
  description = "What Airflow needs to reach the jobs: ZooKeeper, its login, the jobs' token, and where snapshots lie."
  type = object({
    zookeeper      = string
    zookeeper_auth = string
    token          = string
    url            = string
    endpoint       = string
  })
  sensitive = true
}

variable "store" {
  description = "What Airflow needs to read snapshots: credentials file and authority."
  type        = object({ credentials = string, authority = string })
  sensitive   = true
}

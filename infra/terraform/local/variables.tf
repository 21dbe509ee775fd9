variable "name" {
  description = "The cluster's name; this machine's networks are named by it."
  type        = string
  default     = "lowtide"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,30}$", var.name))
    error_message = "A name has up to 31 lower-case letters, digits and dashes, and begins with a letter."
  }
}

variable "cidr" {
  description = "The addresses of its hosts; the first one is this machine's."
  type        = string
  default     = "10.77.0.0/24"

  validation {
    condition     = can(cidrhost(var.cidr, 120))
    error_message = "Give an IPv4 network with at least 128 addresses, like 10.77.0.0/24."
  }
}

variable "small" {
  description = "Three hosts, for trying it out: `services` with one of each server, a Spark worker, and the driver's; no Airflow."
  type        = bool
  default     = false

  validation {
    condition     = !var.small || var.spark_prefix == ""
    error_message = "Spark of a small cluster cannot move to other hosts: leave out `spark_prefix`."
  }
}

variable "kafka_brokers" {
  description = "How many Kafka brokers; topics are kept on three, or on as many as there are."
  type        = number
  default     = 3

  validation {
    condition     = var.kafka_brokers >= 1 && var.kafka_brokers <= 9 && floor(var.kafka_brokers) == var.kafka_brokers
    error_message = "There are 1 to 9 brokers."
  }
}

variable "kafka_optimises" {
  description = "Whether brokers compile with the JVM's optimising compiler too: faster once warm, and more CPU while they start."
  type        = bool
  default     = false
}

variable "zookeeper_nodes" {
  description = "How many ZooKeeper servers; an odd number, so that more than half may be left."
  type        = number
  default     = 3

  validation {
    condition     = contains([1, 3, 5], var.zookeeper_nodes)
    error_message = "There are 1, 3 or 5 ZooKeeper servers."
  }
}

variable "spark_workers" {
  description = "How many Spark workers, each on a host of its own."
  type        = number
  default     = 2

  validation {
    condition     = var.spark_workers >= 1 && var.spark_workers <= 20 && floor(var.spark_workers) == var.spark_workers
    error_message = "There are 1 to 20 Spark workers."
  }
}

variable "spark_worker_cores" {
  description = "How many tasks a Spark worker runs at once."
  type        = number
  default     = 6

  validation {
    condition     = var.spark_worker_cores >= 2 && floor(var.spark_worker_cores) == var.spark_worker_cores
    error_message = "A worker runs 2 tasks or more at once."
  }
}

variable "spark_prefix" {
  description = "What the names of Spark's hosts and of the driver's begin with; another one moves Spark to other hosts."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^([a-z][a-z0-9]{0,9}-)?$", var.spark_prefix))
    error_message = "A prefix has up to 10 lower-case letters and digits, and ends with a dash; or it is empty."
  }
}

variable "airflow" {
  description = "Whether there is a host with Airflow."
  type        = bool
  default     = true
}

variable "software" {
  description = "Folders and files of this machine with what runs on the hosts; `make infra-software` fills it in."
  type = object({
    java      = string
    spark     = string
    kafka     = string
    zookeeper = string
    s3_server = string
    lowtide   = string
    airflow   = string
    hidden    = list(string)
  })
}

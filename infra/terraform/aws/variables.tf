variable "name" {
  description = "The cluster's name; all that is made for it bears the name."
  type        = string
  default     = "lowtide"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,30}$", var.name))
    error_message = "A name has up to 31 lower-case letters, digits and dashes, and begins with a letter."
  }
}

variable "region" {
  description = "The region of AWS."
  type        = string
  default     = "us-east-1"

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "Give a region like us-east-1."
  }
}

variable "tags" {
  description = "Tags on everything."
  type        = map(string)
  default     = {}

  validation {
    condition     = !contains(keys(var.tags), "lowtide")
    error_message = "The tag `lowtide` is the cluster's name; leave it out."
  }
}

variable "cidr" {
  description = "The network's addresses; a sixteenth of them for each zone."
  type        = string
  default     = "10.78.0.0/16"

  validation {
    condition     = can(cidrhost(var.cidr, 4095)) && can(regex("^(10|172|192)\\.", var.cidr)) && tonumber(split("/", var.cidr)[1]) >= 16
    error_message = "Give a private IPv4 network between /16 and /20, like 10.78.0.0/16."
  }
}

variable "zones" {
  description = "The availability zones: two or three of the region. Three brokers and three ZooKeeper servers want three."
  type        = list(string)
  default     = ["us-east-1a", "us-east-1b", "us-east-1c"]

  validation {
    condition     = contains([2, 3], length(distinct(var.zones))) && length(distinct(var.zones)) == length(var.zones)
    error_message = "Give two or three different zones."
  }

  validation {
    condition     = alltrue([for zone in var.zones : startswith(zone, var.region)])
    error_message = "The zones are those of `region`, like us-east-1a."
  }
}

variable "kafka_brokers" {
  description = "How many Kafka brokers; topics are kept on three."
  type        = number
  default     = 3

  validation {
    condition     = var.kafka_brokers >= 3 && var.kafka_brokers <= 30 && var.kafka_brokers % length(var.zones) == 0
    error_message = "There are 3 to 30 brokers, as many in each zone: with three zones 3, 6, 9, ..., with two 4, 6, 8, ..."
  }
}

variable "kafka_broker_type" {
  description = "What a Kafka broker runs on."
  type        = string
  default     = "kafka.m7g.large"

  validation {
    condition     = can(regex("^kafka\\.[a-z][a-z0-9]+\\.[a-z0-9]+$", var.kafka_broker_type))
    error_message = "Give a type of MSK's standard brokers, like kafka.m7g.large."
  }
}

variable "kafka_disk_gb" {
  description = "How much a Kafka broker can keep."
  type        = number
  default     = 100

  validation {
    condition     = var.kafka_disk_gb >= 1 && var.kafka_disk_gb <= 16384 && floor(var.kafka_disk_gb) == var.kafka_disk_gb
    error_message = "A broker keeps 1 to 16384 GB."
  }
}

variable "kafka_version" {
  description = "Kafka's version, as MSK calls it: 4.0 or newer, without ZooKeeper of its own."
  type        = string
  default     = "4.0.x.kraft"

  validation {
    condition     = can(regex("^[4-9]\\.[0-9]+\\.x\\.kraft$", var.kafka_version))
    error_message = "Give a version like 4.0.x.kraft."
  }
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

variable "zookeeper_type" {
  description = "What a ZooKeeper server runs on; of an ARM family, as its image is."
  type        = string
  default     = "t4g.small"

  validation {
    condition     = can(regex("^[a-z]+[0-9]+g[a-z]*\\.[a-z0-9]+$", var.zookeeper_type))
    error_message = "Give an ARM type, like t4g.small or m7g.medium."
  }
}

variable "zookeeper_disk_gb" {
  description = "How much a ZooKeeper server can keep."
  type        = number
  default     = 10

  validation {
    condition     = var.zookeeper_disk_gb >= 1 && var.zookeeper_disk_gb <= 1000 && floor(var.zookeeper_disk_gb) == var.zookeeper_disk_gb
    error_message = "A server keeps 1 to 1000 GB."
  }
}

variable "spark_masters" {
  description = "How many hosts run YARN's and HDFS's masters: one, or three so that one may be lost."
  type        = number
  default     = 1

  validation {
    condition     = contains([1, 3], var.spark_masters)
    error_message = "There is 1 master, or there are 3."
  }
}

variable "spark_master_type" {
  description = "What such a host is."
  type        = string
  default     = "m7g.xlarge"

  validation {
    condition     = can(regex("^[a-z]+[0-9]+[a-z]*\\.[0-9]*xlarge$", var.spark_master_type))
    error_message = "Give an instance type of EMR's, like m7g.xlarge; they begin at xlarge."
  }
}

variable "spark_workers" {
  description = "How many Spark workers, each on a host of its own. One of them runs a job's driver beside its executor."
  type        = number
  default     = 2

  validation {
    condition     = var.spark_workers >= 1 && var.spark_workers <= 100 && floor(var.spark_workers) == var.spark_workers
    error_message = "There are 1 to 100 Spark workers."
  }
}

variable "spark_worker_type" {
  description = "What such a host is."
  type        = string
  default     = "m7g.2xlarge"

  validation {
    condition     = can(regex("^[a-z]+[0-9]+[a-z]*\\.[0-9]*xlarge$", var.spark_worker_type))
    error_message = "Give an instance type of EMR's, like m7g.2xlarge; they begin at xlarge."
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

variable "spark_worker_disk_gb" {
  description = "The disk of such a host, for HDFS and what Spark spills."
  type        = number
  default     = 64

  validation {
    condition     = var.spark_worker_disk_gb >= 32 && var.spark_worker_disk_gb <= 16384 && floor(var.spark_worker_disk_gb) == var.spark_worker_disk_gb
    error_message = "A worker's disk has 32 to 16384 GB."
  }
}

variable "executor_memory" {
  description = "The memory of a worker's executor, without that of its Python processes."
  type        = string
  default     = "8g"

  validation {
    condition     = can(regex("^[1-9][0-9]*[mg]$", var.executor_memory))
    error_message = "Give a number and m or g, like 8g."
  }
}

variable "emr_release" {
  description = "EMR's release; its Hadoop is used, Spark comes with Lowtide's environment."
  type        = string
  default     = "emr-7.13.0"

  validation {
    condition     = can(regex("^emr-([7-9]|[1-9][0-9])\\.[0-9]+\\.[0-9]+$", var.emr_release))
    error_message = "Give a release from emr-7.0.0 on: earlier ones have no Java 17."
  }
}

variable "bucket" {
  description = "The bucket that is made, for snapshots (jobs/), software (software/) and logs (logs/); names are the world's."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$", var.bucket))
    error_message = "A bucket's name has 3 to 63 lower-case letters, digits and dashes, and no dash at its ends."
  }
}

variable "noncurrent_days" {
  description = "How many days an object of the bucket stays after it was overwritten or deleted."
  type        = number
  default     = 7

  validation {
    condition     = var.noncurrent_days >= 1 && var.noncurrent_days <= 365 && floor(var.noncurrent_days) == var.noncurrent_days
    error_message = "Objects stay 1 to 365 days."
  }
}

variable "log_days" {
  description = "How many days logs are kept; CloudWatch knows only certain numbers."
  type        = number
  default     = 365

  validation {
    condition     = contains([30, 60, 90, 120, 150, 180, 365, 400, 545, 731], var.log_days)
    error_message = "Give 30, 60, 90, 120, 150, 180, 365, 400, 545 or 731 days."
  }
}

variable "software" {
  description = <<-EOT
    What hosts install, put into the bucket beforehand: Lowtide's packed environment (its object, its SHA-256), ZooKeeper's
    binary archive (its object, its SHA-512), and certificates.zip for Hadoop's TLS, as EMR's documentation has it.
  EOT
  type = object({
    environment        = string
    environment_sha256 = string
    zookeeper          = string
    zookeeper_sha512   = string
    certificates       = optional(string, "software/certificates.zip")
  })

  validation {
    condition = alltrue([
      for object in [var.software.environment, var.software.zookeeper, var.software.certificates] :
      can(regex("^software/[A-Za-z0-9._/-]+$", object))
    ])
    error_message = "Objects lie in software/ of the bucket; the hosts' roles allow no other."
  }

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.software.environment_sha256)) && can(regex("^[0-9a-f]{128}$", var.software.zookeeper_sha512))
    error_message = "A SHA-256 has 64 hexadecimal digits in lower case, a SHA-512 has 128."
  }
}

variable "kafka_password" {
  description = "The password of Kafka's user; only Secrets Manager keeps it, no state and no plan. openssl rand -hex 24"
  type        = string
  sensitive   = true
  ephemeral   = true

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{24,128}$", var.kafka_password))
    error_message = "Give 24 to 128 letters, digits, dashes and underscores: openssl rand -hex 24"
  }
}

variable "zookeeper_password" {
  description = "The password of the jobs' nodes in ZooKeeper; kept likewise."
  type        = string
  sensitive   = true
  ephemeral   = true

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{24,128}$", var.zookeeper_password))
    error_message = "Give 24 to 128 letters, digits, dashes and underscores: openssl rand -hex 24"
  }
}

variable "control_token" {
  description = "The token of the jobs' control APIs; kept likewise."
  type        = string
  sensitive   = true
  ephemeral   = true

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{24,128}$", var.control_token))
    error_message = "Give 24 to 128 letters, digits, dashes and underscores: openssl rand -hex 24"
  }
}

variable "secrets_version" {
  description = "Another number has the three secrets written again."
  type        = number
  default     = 1

  validation {
    condition     = var.secrets_version >= 1 && floor(var.secrets_version) == var.secrets_version
    error_message = "Versions are 1, 2, 3, ..."
  }
}

variable "airflow" {
  description = <<-EOT
    Airflow: `existing`, one that is there (the IAM role and the security group of its workers, in this network or one
    peered with it), or `mwaa`, one to make. Lowtide needs Airflow 3.3 or newer.
  EOT
  type = object({
    existing = optional(object({ role_name = string, security_group_id = string }))
    mwaa     = optional(object({ version = string, class = optional(string, "mw1.small"), max_workers = optional(number, 2) }))
  })

  validation {
    condition     = (var.airflow.existing == null) != (var.airflow.mwaa == null)
    error_message = "Give either `existing` or `mwaa`."
  }

  validation {
    condition = var.airflow.existing == null ? true : (
      can(regex("^sg-[0-9a-f]+$", var.airflow.existing.security_group_id)) && can(regex("^[A-Za-z0-9+=,.@_-]{1,64}$", var.airflow.existing.role_name))
    )
    error_message = "`existing` has the name of a role, without its ARN, and a security group like sg-0123456789abcdef0."
  }

  validation {
    condition = var.airflow.mwaa == null ? true : (
      can(regex("^(3\\.([3-9]|[1-9][0-9])|[4-9]\\.[0-9]+)\\.[0-9]+$", var.airflow.mwaa.version)) && can(regex("^mw1\\.[0-9]*[a-z]+$", var.airflow.mwaa.class)) && var.airflow.mwaa.max_workers >= 1
    )
    error_message = "`mwaa` has a version from 3.3.0 on, a class like mw1.small, and at least one worker."
  }
}

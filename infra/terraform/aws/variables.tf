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

# What is there already. Each is null by default, and is made then.

variable "existing_vpc" {
  description = <<-EOT
    A VPC that is there: its id, and two or three private subnets, each in a zone of its own. `endpoints` says how hosts
    reach AWS's services: "existing", by endpoints of the VPC; "make", by endpoints that are made here (the one of S3 in
    `route_table_ids`); "none", by a NAT gateway.
  EOT
  type = object({
    id              = string
    subnet_ids      = list(string)
    endpoints       = optional(string, "existing")
    route_table_ids = optional(list(string), [])
  })
  default = null

  validation {
    condition = var.existing_vpc == null ? true : (
      can(regex("^vpc-[0-9a-f]+$", var.existing_vpc.id)) && alltrue([for id in var.existing_vpc.subnet_ids : can(regex("^subnet-[0-9a-f]+$", id))])
    )
    error_message = "Give a VPC like vpc-0123456789abcdef0 and subnets like subnet-0123456789abcdef0."
  }

  validation {
    condition     = var.existing_vpc == null ? true : contains([2, 3], length(distinct(var.existing_vpc.subnet_ids))) && length(distinct(var.existing_vpc.subnet_ids)) == length(var.existing_vpc.subnet_ids)
    error_message = "Give two or three different subnets, each in a zone of its own."
  }

  validation {
    condition     = var.existing_vpc == null ? true : contains(["existing", "make", "none"], var.existing_vpc.endpoints) && (var.existing_vpc.endpoints == "make" || length(var.existing_vpc.route_table_ids) == 0)
    error_message = "`endpoints` is \"existing\", \"make\" or \"none\"; only with \"make\" are there route tables."
  }
}

variable "existing_kafka" {
  description = <<-EOT
    An MSK cluster that is there, whose clients log in with SASL/SCRAM: its ARN, and its brokers' security group, which gets
    a rule that lets Spark's hosts in. It gets the users of `kafka_users`; its disks, settings and topics stay as they are.
  EOT
  type        = object({ cluster_arn = string, security_group_id = string })
  default     = null

  validation {
    condition = var.existing_kafka == null ? true : (
      can(regex("^arn:[a-z-]+:kafka:[a-z0-9-]+:[0-9]{12}:cluster/[^/]+/[^/]+$", var.existing_kafka.cluster_arn)) && can(regex("^sg-[0-9a-f]+$", var.existing_kafka.security_group_id))
    )
    error_message = "Give an ARN like arn:aws:kafka:us-east-1:123456789012:cluster/name/uuid, and a security group like sg-0123456789abcdef0."
  }
}

variable "existing_bucket" {
  description = <<-EOT
    A bucket that is there, instead of `bucket`: its name, a folder in it that ends with a slash, and the key that encrypts
    it, if that is another than the cluster's. Its settings stay as they are: README.md says which Lowtide counts on.
  EOT
  type        = object({ name = string, prefix = optional(string, ""), kms_key_arn = optional(string) })
  default     = null

  validation {
    condition     = (var.existing_bucket == null) != (var.bucket == null)
    error_message = "Give either `bucket`, the name of one to make, or `existing_bucket`."
  }

  validation {
    condition     = var.existing_bucket == null ? true : can(regex("^([A-Za-z0-9._-]+/)*$", var.existing_bucket.prefix)) && (var.existing_bucket.kms_key_arn == null ? true : can(regex("^arn:[a-z-]+:kms:", var.existing_bucket.kms_key_arn)))
    error_message = "`prefix` is empty or a folder like lowtide/, and the key is given by its ARN."
  }
}

variable "existing_kms_key_arn" {
  description = "A KMS key that is there, by its ARN. Its policy has to let CloudWatch Logs use it, and leave the rest to IAM."
  type        = string
  default     = null

  validation {
    condition     = var.existing_kms_key_arn == null ? true : can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/", var.existing_kms_key_arn))
    error_message = "Give the key's ARN, like arn:aws:kms:us-east-1:123456789012:key/…; an alias will not do."
  }
}

# What is made.

variable "protected" {
  description = "Whether EMR refuses to terminate the cluster. Kafka, the key and the bucket are protected anyway: README.md, Destroying it."
  type        = bool
  default     = true
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
    condition     = var.kafka_brokers >= 3 && var.kafka_brokers <= 30 && var.kafka_brokers % length(try(var.existing_vpc.subnet_ids, var.zones)) == 0
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
  description = "How much a Kafka broker can keep at first; its disk grows by itself, and a later change here changes nothing."
  type        = number
  default     = 100

  validation {
    condition     = var.kafka_disk_gb >= 1 && var.kafka_disk_gb <= 16384 && floor(var.kafka_disk_gb) == var.kafka_disk_gb
    error_message = "A broker keeps 1 to 16384 GB."
  }
}

variable "kafka_disk_max_gb" {
  description = "How far a broker's disk grows: by a tenth whenever it is more than 55 % full, not oftener than every six hours."
  type        = number
  default     = 1000

  validation {
    condition     = var.kafka_disk_max_gb >= var.kafka_disk_gb && var.kafka_disk_max_gb <= 16384 && floor(var.kafka_disk_max_gb) == var.kafka_disk_max_gb
    error_message = "A broker's disk grows to `kafka_disk_gb` or more, and to 16384 GB at most."
  }
}

variable "kafka_users" {
  description = "Kafka's users: `jobs` is what jobs log in as, `admin` who makes topics and ACLs; others, if there are more clients. Each is called NAME-USER."
  type        = set(string)
  default     = ["admin", "jobs"]

  validation {
    condition     = length(setintersection(var.kafka_users, ["admin", "jobs"])) == 2 && alltrue([for user in var.kafka_users : can(regex("^[a-z][a-z0-9-]{0,30}$", user))])
    error_message = "There are `admin` and `jobs`; a user has up to 31 lower-case letters, digits and dashes."
  }
}

variable "kafka_acls_required" {
  description = "Whether a topic without ACLs is closed to all users. Turn it on once the ACLs are made: README.md, Topics and ACLs."
  type        = bool
  default     = false
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
  description = "The bucket to make, for snapshots (jobs/), software (software/) and logs (logs/); names are the world's."
  type        = string
  default     = null

  validation {
    condition     = var.bucket == null ? true : can(regex("^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$", var.bucket))
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
    What hosts install: Lowtide's environment and ZooKeeper, as `make environment-archive` packs them, and the certificates
    for Hadoop's TLS. Each is a `file` of this machine, which is put into the bucket, or an `object` that is there already
    with its `sha256`, so that a plan needs no such file.
  EOT
  type = object({
    environment  = object({ file = optional(string), object = optional(string), sha256 = optional(string) })
    zookeeper    = object({ file = optional(string), object = optional(string), sha256 = optional(string) })
    certificates = object({ file = optional(string), object = optional(string), sha256 = optional(string) })
  })

  validation {
    condition     = alltrue([for item in var.software : (item.file == null) != (item.object == null) && (item.file == null) == (item.sha256 != null)])
    error_message = "Give either a `file`, or an `object` with its `sha256`."
  }

  validation {
    condition     = alltrue([for item in var.software : item.file == null ? true : fileexists(item.file)])
    error_message = "There is no such file: make environment-archive; README.md says how the certificates are made."
  }

  validation {
    condition = alltrue([
      for item in var.software : item.object == null ? true : startswith(item.object, "${try(var.existing_bucket.prefix, "")}software/") && can(regex("^[0-9a-f]{64}$", item.sha256))
    ])
    error_message = "Objects lie in software/ of the bucket, as hosts may read no other; a SHA-256 has 64 hexadecimal digits in lower case."
  }
}

variable "control_ports" {
  description = "The ports of the jobs' control APIs, which Airflow and scrapers reach: the first, and for how many jobs."
  type        = object({ first = number, jobs = number })
  default     = { first = 9187, jobs = 20 }

  validation {
    condition     = var.control_ports.first >= 1024 && var.control_ports.jobs >= 1 && var.control_ports.first + var.control_ports.jobs <= 32768
    error_message = "Give ports from 1024 to 32767: the system draws those above for others."
  }
}

variable "alarms" {
  description = <<-EOT
    Alarms: the SNS topic they go to; and the workspace of Amazon's Prometheus that gets the rules of `rules`, if there is one.
  EOT
  type = object({
    topic_arn               = string
    prometheus_workspace_id = optional(string)
    rules                   = optional(string, "../../../conf/alerts.yml")
  })
  default = null

  validation {
    condition     = var.alarms == null ? true : can(regex("^arn:[a-z-]+:sns:", var.alarms.topic_arn)) && (var.alarms.prometheus_workspace_id == null ? true : startswith(var.alarms.prometheus_workspace_id, "ws-"))
    error_message = "Give the ARN of an SNS topic, and a workspace like ws-01234567-89ab-cdef-0123-456789abcdef."
  }
}

variable "kafka_passwords" {
  description = "The passwords of `kafka_users`, by name; only Secrets Manager keeps them, no state and no plan."
  type        = map(string)
  sensitive   = true
  ephemeral   = true

  validation {
    condition     = toset(keys(var.kafka_passwords)) == var.kafka_users
    error_message = "Give a password for each of `kafka_users`, and for no other."
  }

  validation {
    condition     = alltrue([for password in values(var.kafka_passwords) : can(regex("^[A-Za-z0-9_-]{24,128}$", password))])
    error_message = "Give 24 to 128 letters, digits, dashes and underscores: openssl rand -hex 24"
  }
}

variable "zookeeper_password" {
  description = "The password of the jobs' nodes in ZooKeeper; kept likewise. openssl rand -hex 24"
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
    peered with it), or `mwaa`, one to make. Lowtide needs Airflow 3.0 or newer.
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
      can(regex("^(3|[4-9])\\.[0-9]+\\.[0-9]+$", var.airflow.mwaa.version)) && can(regex("^mw1\\.[0-9]*[a-z]+$", var.airflow.mwaa.class)) && var.airflow.mwaa.max_workers >= 1
    )
    error_message = "`mwaa` has a version from 3.0.0 on, a class like mw1.small, and at least one worker."
  }
}

variable "network" {
  description = "The network, as the module `network` gives it."
  type = object({
    name    = string
    vpc_id  = string
    cidr    = string
    subnets = list(object({ id = string, cidr = string, zone = string }))
  })
}

variable "brokers" {
  description = "How many brokers; as many in each zone."
  type        = number
}

variable "instance_type" {
  description = "What a broker runs on."
  type        = string
}

variable "disk_gb" {
  description = "How much a broker can keep at first."
  type        = number
}

variable "kafka_version" {
  description = "Kafka's version, as MSK calls it."
  type        = string
}

variable "clients" {
  description = "Security groups whose hosts may connect: name to id."
  type        = map(string)
}

variable "key_arn" {
  description = "The key that encrypts the disks and the password."
  type        = string
}

variable "log_days" {
  description = "How many days the brokers' logs are kept."
  type        = number
}

variable "existing" {
  description = "A cluster that is there: its ARN, and its brokers' security group. Null: one is made."
  type        = object({ cluster_arn = string, security_group_id = string })
}

variable "disk_max_gb" {
  description = "How far a broker's disk may grow."
  type        = number
}

variable "acls_required" {
  description = "Whether what no ACL speaks of is closed, or open to all users."
  type        = bool
}

variable "users" {
  description = "Who may log in; `jobs` among them."
  type        = set(string)
}

variable "passwords" {
  description = "The users' passwords, by name; they reach no state."
  type        = map(string)
  ephemeral   = true
  sensitive   = true
}

variable "password_version" {
  description = "Another number has the passwords written again."
  type        = number
}

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
  description = "How much a broker can keep."
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

variable "user" {
  description = "Who may log in."
  type        = string
  default     = "lowtide"
}

variable "password" {
  description = "The user's password; it reaches no state."
  type        = string
  ephemeral   = true
  sensitive   = true
}

variable "password_version" {
  description = "Another number has the password written again."
  type        = number
}

variable "name" {
  description = "The cluster's name; the alarms' names begin with it."
  type        = string
}

variable "topic_arn" {
  description = "The SNS topic that alarms go to."
  type        = string
}

variable "kafka" {
  description = "Kafka's cluster, as the module `kafka` gives it."
  type        = object({ name = string, brokers = number })
}

variable "spark" {
  description = "EMR's cluster: its id, and how many workers it has."
  type        = object({ id = string, workers = number })
}

variable "zookeeper" {
  description = "ZooKeeper's hosts: name to EC2's id."
  type        = map(string)
}

variable "rules" {
  description = "Prometheus' rules on what jobs say of themselves, and the workspace of Amazon's Prometheus that is to have them; or null."
  type        = object({ workspace_id = string, text = string })
}

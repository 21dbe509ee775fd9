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

variable "services" {
  description = "AWS services that its hosts call; each gets an endpoint in every subnet."
  type        = set(string)
}

variable "route_table_ids" {
  description = "Route tables that lead to S3 through an endpoint; without any there is none."
  type        = list(string)
}

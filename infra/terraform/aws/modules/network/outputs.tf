output "network" {
  description = "The network, as the other modules take it."
  value = {
    name          = var.name
    vpc_id        = aws_vpc.this.id
    cidr          = var.cidr
    services_cidr = var.cidr
    subnets       = [for zone in var.zones : { id = aws_subnet.this[zone].id, cidr = local.subnets[zone], zone = zone }]
  }

  depends_on = [aws_route_table_association.this]
}

output "route_table_ids" {
  description = "The subnets' route tables."
  value       = [aws_route_table.this.id]
}

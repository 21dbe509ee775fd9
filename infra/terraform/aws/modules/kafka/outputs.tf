output "bootstrap_servers" {
  description = "Where clients find it: host:port, with commas."
  value       = local.cluster.bootstrap_brokers_sasl_scram

  depends_on = [aws_msk_single_scram_secret_association.user]
}

output "security" {
  description = "How jobs log in."
  value       = { protocol = "SASL_SSL", mechanism = "SCRAM-SHA-512", username = "${var.network.name}-jobs" }
}

output "password" {
  description = "Where the jobs' password lies: the secret's ARN."
  value       = aws_secretsmanager_secret.user["jobs"].arn
}

output "users" {
  description = "All users: name to what they log in as, and the secret with the password."
  value       = { for name in var.users : name => { username = "${var.network.name}-${name}", secret = aws_secretsmanager_secret.user[name].arn } }
}

output "security_group_id" {
  description = "The group of the brokers."
  value       = local.group
}

output "cluster" {
  description = "What CloudWatch calls the cluster, and how many brokers it has."
  value       = { name = local.cluster.cluster_name, brokers = local.make ? var.brokers : data.aws_msk_cluster.existing[0].number_of_broker_nodes }
}

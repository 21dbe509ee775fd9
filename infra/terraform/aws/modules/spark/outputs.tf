output "master" {
  description = "Where a job is submitted."
  value       = "yarn"

  depends_on = [aws_emr_cluster.this]
}

output "defaults" {
  description = "Spark's own settings, for those who submit."
  value       = local.defaults
}

output "cluster" {
  description = "EMR's id and ARN of the cluster, and the host of YARN's master."
  value       = { id = aws_emr_cluster.this.id, arn = aws_emr_cluster.this.arn, host = aws_emr_cluster.this.master_public_dns }
}

output "security_group_id" {
  description = "The group of its hosts, for whatever they connect to."
  value       = aws_security_group.this.id
}

output "role" {
  description = "What jobs are to AWS."
  value       = aws_iam_role.job.arn
}

output "names" {
  description = "The alarms' names."
  value       = sort([for alarm in aws_cloudwatch_metric_alarm.this : alarm.alarm_name])
}

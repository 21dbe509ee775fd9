# What wakes somebody: alarms on what CloudWatch knows of the servers, and the rules of conf/alerts.yml on what jobs say of
# themselves. README.md has the two side by side.

locals {
  brokers = { for n in range(1, var.kafka.brokers + 1) : tostring(n) => { "Cluster Name" = var.kafka.name, "Broker ID" = tostring(n) } }
  kafka   = { "Cluster Name" = var.kafka.name }
  spark   = { JobFlowId = var.spark.id }

  alarms = merge(
    {
      for n, dimensions in local.brokers : "kafka-${n}-disk" => {
        says = "Kafka broker ${n} has used 85 % of its disk: its disk has reached kafka_disk_max_gb, or fills faster than it grows."
        of   = ["AWS/Kafka", "KafkaDataLogsDiskUsed"], by = dimensions, is = ["Maximum", ">", 85], for_minutes = 5, silence = "missing"
      }
    },
    {
      for n, dimensions in local.brokers : "kafka-${n}-behind" => {
        says = "Kafka broker ${n} has partitions that lack copies: another broker is away, or slow. With two away writes end."
        of   = ["AWS/Kafka", "UnderReplicatedPartitions"], by = dimensions, is = ["Maximum", ">", 0], for_minutes = 15, silence = "missing"
      }
    },
    {
      kafka-offline = {
        says = "Partitions have no leader: whoever reads or writes them stands. Foretells LowtideMinTimeStands."
        of   = ["AWS/Kafka", "OfflinePartitionsCount"], by = local.kafka, is = ["Maximum", ">", 0], for_minutes = 1, silence = "missing"
      }
      kafka-controller = {
        says = "Kafka has no controller: no topic changes, no leader is chosen."
        of   = ["AWS/Kafka", "ActiveControllerCount"], by = local.kafka, is = ["Maximum", "<", 1], for_minutes = 3, silence = "breaching"
      }
      spark-workers = {
        says = "EMR has fewer workers than it should: jobs start again on the rest, if there is room. Foretells LowtideRestarts."
        of   = ["AWS/ElasticMapReduce", "CoreNodesRunning"], by = local.spark, is = ["Minimum", "<", var.spark.workers], for_minutes = 10, silence = "breaching"
      }
      spark-unhealthy = {
        says = "A worker's disks are full or broken: YARN starts nothing there."
        of   = ["AWS/ElasticMapReduce", "MRUnhealthyNodes"], by = local.spark, is = ["Maximum", ">", 0], for_minutes = 5, silence = "missing"
      }
      spark-apps = {
        says = "No program runs on YARN. Foretells LowtideJobDown."
        of   = ["AWS/ElasticMapReduce", "AppsRunning"], by = local.spark, is = ["Maximum", "<", 1], for_minutes = 10, silence = "breaching"
      }
      spark-hdfs = {
        says = "HDFS, which holds Spark's checkpoints, is 80 % full."
        of   = ["AWS/ElasticMapReduce", "HDFSUtilization"], by = local.spark, is = ["Maximum", ">", 80], for_minutes = 10, silence = "missing"
      }
    },
    {
      for host, id in var.zookeeper : "${host}-status" => {
        says = "Host ${host} does not answer EC2. With half of ZooKeeper's servers away no job commits or starts."
        of   = ["AWS/EC2", "StatusCheckFailed"], by = { InstanceId = id }, is = ["Maximum", ">", 0], for_minutes = 3, silence = "breaching"
      }
    },
  )
  operators = { ">" = "GreaterThanThreshold", "<" = "LessThanThreshold" }
}

resource "aws_cloudwatch_metric_alarm" "this" {
  for_each = local.alarms

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.says
  namespace           = each.value.of[0]
  metric_name         = each.value.of[1]
  dimensions          = each.value.by
  statistic           = each.value.is[0]
  comparison_operator = local.operators[each.value.is[1]]
  threshold           = each.value.is[2]
  # EMR tells CloudWatch every five minutes, the others every minute.
  period             = each.value.of[0] == "AWS/ElasticMapReduce" ? 300 : 60
  evaluation_periods = max(1, each.value.for_minutes / (each.value.of[0] == "AWS/ElasticMapReduce" ? 5 : 1))
  treat_missing_data = each.value.silence
  alarm_actions      = [var.topic_arn]
  ok_actions         = [var.topic_arn]
}

resource "aws_prometheus_rule_group_namespace" "this" {
  count = var.rules == null ? 0 : 1

  name         = var.name
  workspace_id = var.rules.workspace_id
  data         = var.rules.text
}

{{- /* The operator's environment. Only what is set is rendered: for the rest the operator's own defaults hold. */ -}}
{{- define "tenon.env" -}}
{{- $settings := .Values.settings -}}
{{- $gates := $settings.featureGates -}}
- name: KUBERNETES_MIN_VERSION
  value: "1.19.0-0"
- name: KARPENTER_SERVICE
  value: {{ include "tenon.fullname" . | quote }}
- name: LOG_LEVEL
  value: {{ .Values.logLevel | quote }}
- name: LOG_OUTPUT_PATHS
  value: {{ join "," .Values.logOutputPaths | quote }}
- name: LOG_ERROR_OUTPUT_PATHS
  value: {{ join "," .Values.logErrorOutputPaths | quote }}
- name: METRICS_PORT
  value: {{ .Values.controller.metrics.port | quote }}
- name: HEALTH_PROBE_PORT
  value: {{ .Values.controller.healthProbe.port | quote }}
{{- if not (kindIs "invalid" .Values.controller.debug.port) }}
- name: DEBUG_PORT
  value: {{ .Values.controller.debug.port | quote }}
{{- end }}
{{- if .Values.controller.debug.profiling }}
- name: ENABLE_PROFILING
  value: "true"
{{- end }}
{{- if .Values.controller.tracing.enabled }}
- name: ENABLE_TRACING
  value: "true"
{{- end }}
{{- with .Values.controller.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
- name: SYSTEM_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: CPU_REQUESTS
  valueFrom:
    resourceFieldRef:
      containerName: {{ .Values.controller.containerName }}
      divisor: 1m
      resource: requests.cpu
- name: MEMORY_LIMIT
  valueFrom:
    resourceFieldRef:
      containerName: {{ .Values.controller.containerName }}
      divisor: "1"
      resource: limits.memory
- name: FEATURE_GATES
  value: "ReservedCapacity={{ $gates.reservedCapacity }},SpotToSpotConsolidation={{ $gates.spotToSpotConsolidation }},NodeRepair={{ $gates.nodeRepair }},NodeOverlay={{ $gates.nodeOverlay }},StaticCapacity={{ $gates.staticCapacity }},CapacityBuffer={{ $gates.capacityBuffer }},PodDeletionCostManagement={{ $gates.podDeletionCostManagement }},TerminateFirstDrift={{ $gates.terminateFirstDrift }},TerminateFirstRepair={{ $gates.terminateFirstRepair }}"
{{- $texts := list
      (list "BATCH_MAX_DURATION" $settings.batchMaxDuration)
      (list "BATCH_IDLE_DURATION" $settings.batchIdleDuration)
      (list "PREFERENCE_POLICY" $settings.preferencePolicy)
      (list "MIN_VALUES_POLICY" $settings.minValuesPolicy)
      (list "CLUSTER_CA_BUNDLE" $settings.clusterCABundle)
      (list "CLUSTER_NAME" (required "settings.clusterName is required" $settings.clusterName))
      (list "CLUSTER_ENDPOINT" $settings.clusterEndpoint)
      (list "INTERRUPTION_QUEUE" $settings.interruptionQueue)
      (list "RESERVED_ENIS" $settings.reservedENIs)
      (list "AMI_REFRESH_INTERVAL" $settings.amiRefreshInterval)
      (list "SUBNET_REFRESH_INTERVAL" $settings.subnetRefreshInterval)
      (list "NODE_PRICE" $settings.nodePrice)
      (list "LARGEST_SHARE" $settings.largestShare)
      (list "FEW_NODES" $settings.fewNodes)
      (list "SCHEDULER_CONFIG" $settings.schedulerConfig)
      (list "NOMINATE_PODS" (ternary "" "false" $settings.nominatePods))
      (list "VM_MEMORY_OVERHEAD_PERCENT" $settings.vmMemoryOverheadPercent)
      (list "ISOLATED_VPC" $settings.isolatedVPC)
      (list "STATIC_INSTANCE_PROFILES" $settings.staticInstanceProfiles)
      (list "EKS_CONTROL_PLANE" $settings.eksControlPlane)
      (list "ENABLE_ZONAL_SHIFT" $settings.enableZonalShift)
      (list "IGNORE_DRA_REQUESTS" $settings.ignoreDRARequests)
      (list "DISABLE_CLUSTER_STATE_OBSERVABILITY" $settings.disableClusterStateObservability)
      (list "DISABLE_DRY_RUN" $settings.disableDryRun) }}
{{- range $texts }}
{{- if index . 1 }}
- name: {{ index . 0 }}
  value: {{ index . 1 | quote }}
{{- end }}
{{- end }}
{{- with .Values.controller.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

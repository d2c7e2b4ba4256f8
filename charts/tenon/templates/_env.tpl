{{- /* The operator's environment. A variable may be there once only, and those of controller.env count. */ -}}
{{- define "tenon.env" -}}
{{- $own := default list .Values.controller.env -}}
{{- $names := list -}}
{{- range $own }}{{ $names = append $names .name }}{{ end -}}
{{- $env := list -}}
{{- range include "tenon.settingsEnv" . | fromYamlArray }}
{{- if not (has .name $names) }}{{ $env = append $env . }}{{ end }}
{{- end -}}
{{- concat $env $own | toYaml -}}
{{- end -}}
{{- /* The variables of the other values. Only what is set is rendered: for the rest the operator's own defaults hold. */ -}}
{{- define "tenon.settingsEnv" -}}
{{- $settings := .Values.settings -}}
{{- $gates := default dict $settings.featureGates -}}
{{- if eq (dig "nodeClassCEL" false (default dict $settings.awsFeatureGates) | toString) "true" -}}
{{- fail "settings.awsFeatureGates.nodeClassCEL is true, and Tenon does not evaluate CEL expressions in spec.kubelet: write maxPods, kubeReserved and systemReserved of your EC2NodeClasses as values, and set it to false" -}}
{{- end -}}
- name: KUBERNETES_MIN_VERSION
  value: "1.19.0-0"
- name: KARPENTER_SERVICE
  value: {{ include "tenon.fullname" . | quote }}
{{- with .Values.logLevel }}
- name: LOG_LEVEL
  value: {{ . | quote }}
{{- end }}
{{- with .Values.logOutputPaths }}
- name: LOG_OUTPUT_PATHS
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.logErrorOutputPaths }}
- name: LOG_ERROR_OUTPUT_PATHS
  value: {{ join "," . | quote }}
{{- end }}
- name: METRICS_PORT
  value: {{ .Values.controller.metrics.port | quote }}
- name: HEALTH_PROBE_PORT
  value: {{ .Values.controller.healthProbe.port | quote }}
{{- if not (kindIs "invalid" .Values.controller.decisions.port) }}
- name: DECISIONS_PORT
  value: {{ .Values.controller.decisions.port | quote }}
{{- end }}
{{- if .Values.controller.dashboard.enabled }}
- name: ENABLE_DASHBOARD
  value: "true"
{{- if not (kindIs "invalid" .Values.controller.dashboard.port) }}
- name: DASHBOARD_PORT
  value: {{ .Values.controller.dashboard.port | quote }}
{{- end }}
{{- end }}
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
      containerName: {{ include "tenon.containerName" . }}
      divisor: 1m
      resource: requests.cpu
- name: MEMORY_LIMIT
  valueFrom:
    resourceFieldRef:
      containerName: {{ include "tenon.containerName" . }}
      divisor: "1"
      resource: limits.memory
{{- $rendered := list }}
{{- range $gate := list "reservedCapacity" "spotToSpotConsolidation" "nodeRepair" "nodeOverlay" "staticCapacity" "capacityBuffer" "podDeletionCostManagement" "terminateFirstDrift" "terminateFirstRepair" }}
{{- $on := ternary (get $gates $gate) (eq $gate "reservedCapacity") (hasKey $gates $gate) }}
{{- $rendered = append $rendered (printf "%s%s=%v" (substr 0 1 $gate | upper) (substr 1 -1 $gate) $on) }}
{{- end }}
- name: FEATURE_GATES
  value: {{ join "," $rendered | quote }}
{{- /* As in Karpenter's chart, the value of a setting may be a template. */ -}}
{{- $settingsOf := list
      (list "BATCH_MAX_DURATION" "batchMaxDuration")
      (list "BATCH_IDLE_DURATION" "batchIdleDuration")
      (list "PREFERENCE_POLICY" "preferencePolicy")
      (list "MIN_VALUES_POLICY" "minValuesPolicy")
      (list "CLUSTER_CA_BUNDLE" "clusterCABundle")
      (list "CLUSTER_NAME" "clusterName")
      (list "CLUSTER_ENDPOINT" "clusterEndpoint")
      (list "INTERRUPTION_QUEUE" "interruptionQueue")
      (list "RESERVED_ENIS" "reservedENIs")
      (list "AMI_REFRESH_INTERVAL" "amiRefreshInterval")
      (list "SUBNET_REFRESH_INTERVAL" "subnetRefreshInterval")
      (list "NODE_PRICE" "nodePrice")
      (list "LARGEST_SHARE" "largestShare")
      (list "FEW_NODES" "fewNodes")
      (list "SCHEDULER_CONFIG" "schedulerConfig")
      (list "KOPS_STATE_STORE" "kopsStateStore")
      (list "VM_MEMORY_OVERHEAD_PERCENT" "vmMemoryOverheadPercent")
      (list "ISOLATED_VPC" "isolatedVPC")
      (list "STATIC_INSTANCE_PROFILES" "staticInstanceProfiles")
      (list "EKS_CONTROL_PLANE" "eksControlPlane")
      (list "ENABLE_ZONAL_SHIFT" "enableZonalShift")
      (list "DISABLE_CLUSTER_STATE_OBSERVABILITY" "disableClusterStateObservability")
      (list "DISABLE_DRY_RUN" "disableDryRun") }}
{{- $_ := required "settings.clusterName is required" $settings.clusterName }}
{{- range $settingsOf }}
{{- $value := get $settings (index . 1) }}
{{- $text := toString $value }}
{{- if contains "{{" $text }}
{{- $text = tpl $text $ }}
{{- end }}
{{- if and $value (ne $text "") (ne $text "false") }}
- name: {{ index . 0 }}
  value: {{ $text | quote }}
{{- end }}
{{- end }}
{{- /* On by default in the operator. */ -}}
{{- range list (list "IGNORE_DRA_REQUESTS" "ignoreDRARequests") (list "NOMINATE_PODS" "nominatePods") }}
{{- if eq (get $settings (index . 1) | toString) "false" }}
- name: {{ index . 0 }}
  value: "false"
{{- end }}
{{- end }}
{{- end -}}

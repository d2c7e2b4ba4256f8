{{- define "tenon.name" -}}
{{- default "karpenter" .Values.nameOverride -}}
{{- end -}}

{{- define "tenon.fullname" -}}
{{- default "karpenter" .Values.fullnameOverride -}}
{{- end -}}

{{- define "tenon.serviceAccountName" -}}
{{- if .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name -}}
{{- else if .Values.serviceAccount.create -}}
{{- include "tenon.fullname" . -}}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{- define "tenon.image" -}}
{{- $image := .Values.controller.image -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- if $image.digest -}}@{{ $image.digest }}{{- end -}}
{{- end -}}

{{- define "tenon.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tenon.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* Labels as one map: a key that is given twice would be given once, with the user's value, unless it selects pods. */ -}}
{{- define "tenon.labels" -}}
{{- $labels := dict
      "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version)
      "app.kubernetes.io/version" .Chart.AppVersion
      "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $labels = mergeOverwrite $labels (deepCopy .Values.additionalLabels) -}}
{{- $labels = mergeOverwrite $labels (include "tenon.selectorLabels" . | fromYaml) -}}
{{- toYaml $labels -}}
{{- end -}}

{{- /* Metadata: a list of root, name, namespace ("" for none), more labels, more annotations. */ -}}
{{- define "tenon.metadata" -}}
{{- $root := index . 0 -}}
{{- $labels := mergeOverwrite (include "tenon.labels" $root | fromYaml) (index . 3) -}}
{{- $annotations := mergeOverwrite (deepCopy $root.Values.additionalAnnotations) (deepCopy (index . 4)) -}}
name: {{ index . 1 }}
{{- with index . 2 }}
namespace: {{ . }}
{{- end }}
labels:
  {{- toYaml $labels | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

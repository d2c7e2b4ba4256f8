{{- define "tenon.name" -}}
{{- default "karpenter" .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* The name that Karpenter's chart gives in a release of this name, so that associations and policies that name its
ServiceAccount stay valid. Releases of Tenon's own name have the name that `tenon install` gives. */ -}}
{{- define "tenon.fullname" -}}
{{- $name := include "tenon.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if and (not .Values.nameOverride) (contains "tenon" .Release.Name) -}}
karpenter
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tenon.containerName" -}}
{{- default "controller" .Values.controller.containerName -}}
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
{{- if regexMatch "(^|/)karpenter/controller$" $image.repository -}}
{{- fail (printf "controller.image.repository is %q, the image of Karpenter, which this chart can't run: set it to the image of Tenon, such as REGISTRY/tenon-operator, and remove controller.image.tag and controller.image.digest if they are Karpenter's" $image.repository) -}}
{{- end -}}
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
{{- $labels = mergeOverwrite $labels (deepCopy (default dict .Values.additionalLabels)) -}}
{{- $labels = mergeOverwrite $labels (include "tenon.selectorLabels" . | fromYaml) -}}
{{- toYaml $labels -}}
{{- end -}}

{{- /* Metadata: a list of root, name, namespace ("" for none), more labels, more annotations. */ -}}
{{- define "tenon.metadata" -}}
{{- $root := index . 0 -}}
{{- $labels := mergeOverwrite (include "tenon.labels" $root | fromYaml) (index . 3) -}}
{{- $annotations := mergeOverwrite (deepCopy (default dict $root.Values.additionalAnnotations)) (deepCopy (default dict (index . 4))) -}}
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

{{- /* Affinity in which terms about pods without a selector are about the operator's own pods. */ -}}
{{- define "tenon.affinity" -}}
{{- $selector := dict "matchLabels" (include "tenon.selectorLabels" . | fromYaml) -}}
{{- $affinity := deepCopy (default dict .Values.affinity) -}}
{{- range $kind := list "podAffinity" "podAntiAffinity" -}}
{{- $rules := default dict (get $affinity $kind) -}}
{{- range default list $rules.requiredDuringSchedulingIgnoredDuringExecution -}}
{{- if kindIs "invalid" .labelSelector -}}{{- $_ := set . "labelSelector" $selector -}}{{- end -}}
{{- end -}}
{{- range default list $rules.preferredDuringSchedulingIgnoredDuringExecution -}}
{{- if kindIs "invalid" .podAffinityTerm.labelSelector -}}{{- $_ := set .podAffinityTerm "labelSelector" $selector -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end -}}

{{- /* Metadata of what `helm test` creates: a list of root, name, namespace ("" for none), annotations. The labels select no pod of
the operator. */ -}}
{{- define "tenon.testMetadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 1 }}
{{- with index . 2 }}
namespace: {{ . }}
{{- end }}
labels:
  {{- $labels := omit (include "tenon.labels" $root | fromYaml) "app.kubernetes.io/instance" }}
  {{- set $labels "app.kubernetes.io/name" (index . 1) | toYaml | nindent 2 }}
annotations:
  {{- index . 3 | toYaml | nindent 2 }}
{{- end -}}

{{/* Of everything in the release's namespace; also the operator's address and its Lease. */}}
{{- define "nightjar.name" -}}
{{ printf "%s-operator" .Release.Name | replace "." "-" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Of what is not in a namespace, so that releases in several of them do not meet. */}}
{{- define "nightjar.clusterName" -}}
{{ printf "%s.%s" .Release.Namespace (include "nightjar.name" .) }}
{{- end }}

{{- define "nightjar.selector" -}}
app.kubernetes.io/name: nightjar
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "nightjar.labels" -}}
{{ include "nightjar.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The name of an image: called with the chart's context and one of values.images. */}}
{{- define "nightjar.image" -}}
{{- $context := index . 0 }}
{{- $image := index . 1 }}
{{- $repository := list $context.Values.images.registry $image.repository | compact | join "/" }}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default $context.Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* Of every container of the chart: what the Pod Security Standard "restricted" asks for, and a root that is read-only. */}}
{{- define "nightjar.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
{{- end }}

{{- define "nightjar.podSecurity" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "nightjar.certificateSecret" -}}
{{ .Values.webhook.certificate.secretName | default (printf "%s-webhook" (include "nightjar.name" .)) }}
{{- end }}

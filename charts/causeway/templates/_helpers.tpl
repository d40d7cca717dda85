{{/* Objects have the same names in every release, so that Helm itself refuses a second
operator for a namespace that has one. */}}
{{- define "causeway.labels" -}}
app.kubernetes.io/name: causeway-operator
app.kubernetes.io/part-of: causeway
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Selectors can never change: nothing of a release or a user is in them. */}}
{{- define "causeway.selector" -}}
app.kubernetes.io/name: causeway-operator
{{- end }}

{{/* The namespaces of the operator, as a JSON list. */}}
{{- define "causeway.namespaces" -}}
{{- .Values.scope.namespaces | default (list .Release.Namespace) | uniq | sortAlpha | toJson -}}
{{- end }}

{{- define "causeway.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (index . 1) }}
{{- end -}}
{{- end }}

{{/* Every object of a file below files/, with the labels of the release. These files are
copies of config/, made by hack/generate-charts.sh. */}}
{{- define "causeway.file" -}}
{{- $root := index . 0 -}}
{{- range $text := splitList "\n---\n" ($root.Files.Get (index . 1)) }}
{{- $object := fromYaml $text }}
{{- $labels := merge (fromYaml (include "causeway.labels" $root)) ($object.metadata.labels | default dict) }}
{{- $_ := set $object.metadata "labels" $labels }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}

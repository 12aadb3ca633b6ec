{{- define "weir.labels" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The image of a part, without its digest. */}}
{{- define "weir.image" -}}
{{ .root.Values.images }}/{{ .name }}:{{ .part.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{/* The digest of a part's image, which has to be there. */}}
{{- define "weir.digest" -}}
{{ required (printf "%s.digest: set the digest of the image, sha256:…, which the release and `make image` state" .name) .part.digest }}
{{- end -}}

{{/* How the gateway names the cluster of a service. */}}
{{- define "weir.cluster" -}}
{{- if eq .root.Values.gateway "envoy-gateway" -}}
{{ .name }}
{{- else if eq .root.Values.istio.proxy "waypoint" -}}
inbound-vip|{{ .port }}|http|{{ .host }}
{{- else -}}
outbound|{{ .port }}||{{ .host }}
{{- end -}}
{{- end -}}

{{/* The host of the ledger, if there is one. Envoy Gateway's proxies find the replicas by DNS, and Istio knows them itself. */}}
{{- define "weir.ledger" -}}
{{- if .Values.fleet.host -}}
{{ .Values.fleet.host }}
{{- else if .Values.ledger.enabled -}}
{{ .Release.Name }}-ledger{{ if eq .Values.gateway "envoy-gateway" }}-replicas{{ end }}.{{ .Release.Namespace }}.svc.cluster.local
{{- end -}}
{{- end -}}

{{/* The variables that the filter reads from its proxy's environment, with the secrets that have them. */}}
{{- define "weir.variables" -}}
{{- if and .Values.directory.host .Values.directory.secret }}
- name: WEIR_DIRECTORY_TOKEN
  secret: {{ .Values.directory.secret }}
{{- end }}
{{- if and (include "weir.ledger" .) .Values.fleet.secret }}
- name: WEIR_LEDGER_TOKEN
  secret: {{ .Values.fleet.secret }}
{{- end }}
{{- end -}}

{{/* The same as the environment of a container. */}}
{{- define "weir.environment" -}}
{{- range include "weir.variables" . | fromYamlArray }}
- name: {{ .name }}
  valueFrom:
    secretKeyRef: { name: {{ .secret }}, key: {{ .name }} }
{{- end }}
{{- end -}}

{{/* The filter's configuration, with the clusters of this gateway. What the values say themselves stays. */}}
{{- define "weir.configuration" -}}
{{- $configuration := deepCopy .Values.configuration -}}
{{- if eq .Values.gateway "istio" -}}
{{- /* Istio sets no vm_id: all plugins of a proxy share one store, and this name keeps two Weirs apart. */ -}}
{{- $configuration = merge $configuration (dict "namespace" (printf "%s.%s" .Release.Namespace .Release.Name)) -}}
{{- end -}}
{{- $ledger := include "weir.ledger" . -}}
{{- /* Reports go to the service of the directory, unless they name a cluster themselves, which is not told the directory's token. */ -}}
{{- $reports := and $configuration.usage (not $configuration.usage.cluster) -}}
{{- range list
    (dict "field" "directory" "name" "weir-directory" "host" .Values.directory.host "of" .Values.directory "variable" "WEIR_DIRECTORY_TOKEN")
    (dict "field" "usage" "name" "weir-directory" "host" (ternary .Values.directory.host "" (not (not $reports))) "of" .Values.directory "variable" "WEIR_DIRECTORY_TOKEN")
    (dict "field" "fleet" "name" "weir-ledger" "host" $ledger "of" .Values.fleet "variable" "WEIR_LEDGER_TOKEN") -}}
{{- if .host -}}
{{- $service := dict "cluster" (include "weir.cluster" (dict "root" $ "name" .name "host" .host "port" .of.port)) -}}
{{- /* The names of Istio's clusters have the host. */ -}}
{{- if eq $.Values.gateway "envoy-gateway" }}{{ $_ := set $service "authority" .host }}{{ end -}}
{{- if .of.secret }}{{ $_ := set $service "bearer" (dict "env" .variable) }}{{ end -}}
{{- $_ := set $configuration .field (merge (get $configuration .field | default dict) $service) -}}
{{- end -}}
{{- end -}}
{{ toYaml $configuration }}
{{- end -}}

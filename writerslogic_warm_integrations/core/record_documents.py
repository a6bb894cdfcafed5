from warm_integrations.core.record_documents import *
